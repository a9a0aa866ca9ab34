"""A project as users have one, of which the deploys of a storm are copies, some of them spoilt."""
