"""How results are shown: tables, HTML pages, SVG pictures, and the cluster map that the dashboard shares.

Nothing is simulated or decided here: results come in, text goes out.
"""
