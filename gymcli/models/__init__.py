"""Whoever answers: endpoints, client, limits, retries, dialects, the embedded model, roles."""
