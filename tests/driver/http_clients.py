"""Real clients."""
SCENARIOS = []
