"""CertHarvest (Algorithm 2 of the paper).

The certificate as the filter of self-training, with its controls.
"""
