"""The evaluation of HAS and JPS (TPDS 2024), rebuilt."""
