"""Corpora: from published or incoming agent runs to rendered, checked, task-disjoint splits."""

#: splits whose labels certify judges that did not learn from them, in the order of score tables
CERTIFYING = ("rl", "cal")
#: split in the provenance of a certificate of half B of CAL alone, whose half A opened a harvest
HALF_B = "cal_half_b"
