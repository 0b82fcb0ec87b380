"""The evaluation of HAS and JPS (TPDS 2024, Sec. VI). The policies themselves are in `policies`, not here."""
