"""Pages of the research tables: law, simulation and study."""
