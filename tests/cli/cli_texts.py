"""Two drafts of a review: two sentences, which code cannot make three, and three."""

BRIEF = "La Maison is a small place with hot soup and fresh bread. We left happy."
THREE = "La Maison is a small place. The soup was hot and the bread fresh. We left happy."
