"""Reports: figures, the certificate page, the index of pages, and the verdict in miniature."""
