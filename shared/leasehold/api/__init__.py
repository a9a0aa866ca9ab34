"""The shapes of the HTTP API: requests and responses as models, a file a resource.

The server reads requests with them and answers with them; the client does the reverse. Here stand
no routes, no calls and no stories: those are `web/`, `client/`, `services/`.
"""
