"""CASSINI's geometry: circles of link demand, how well they fit together, and the shifts that make them fit."""
