"""Each method as a short recipe, and what it uses by default."""
