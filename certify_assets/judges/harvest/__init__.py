"""CertHarvest (Algorithm 2 of the paper): the certificate as the filter of self-training, with its controls."""
