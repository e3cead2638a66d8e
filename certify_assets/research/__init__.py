"""Research: the paper's numbers, the law, simulations, studies, and the MiniWoB++ generator."""
