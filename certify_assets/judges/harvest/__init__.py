"""CertHarvest (Algorithm 2 of the paper): self-training filtered by a certificate."""
