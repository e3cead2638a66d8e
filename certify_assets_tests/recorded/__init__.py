"""What the product prints, recorded, so that a rebuild can be held against it."""
