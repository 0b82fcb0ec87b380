"""Parts that several policies are made of. Nothing here is a policy by itself, and no policy imports another."""
