"""Two drafts of a review: five sentences, and three."""

LONG = "La Maison is a small place. The soup was hot. The bread was fresh. The staff smiled. We left happy."
SHORT = "La Maison is a small place. The soup was hot and the bread fresh. We left happy."
