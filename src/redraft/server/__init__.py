"""`redraft serve`: an OpenAI- and Anthropic-compatible server whose virtual models `refine/<preset>` answer refined."""
