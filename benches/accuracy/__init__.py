"""How near the simulator and its costs are to implementations that nobody here wrote.

``make accuracy`` runs all of it again.
"""
