"""Whoever answers: endpoints, the client, limits, retries, dialects, the embedded model, roles."""
