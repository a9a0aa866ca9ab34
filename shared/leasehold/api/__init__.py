"""The shapes of the HTTP API: requests and responses as models, a file a resource.

The server reads requests with them and answers with them; the client of the command line does the
reverse. Here stand no routes, no calls and no stories: those are `web/`, the client, `services/`.
"""
