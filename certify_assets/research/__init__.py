"""Research: the paper's numbers, the certifiability law, simulations, seed and harvest studies,
and the MiniWoB++ generator.
"""
