"""How running jobs share links: isolated, steady (max-min fair), in phases, and interleaved. Knows no policy."""
