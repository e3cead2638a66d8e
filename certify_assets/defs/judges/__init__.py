"""The chain that every judge gets: adapter, scores, certificate, audit, page."""
