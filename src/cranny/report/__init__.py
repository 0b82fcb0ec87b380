"""What a comparison of runs looks like: a table, a page and a picture."""
