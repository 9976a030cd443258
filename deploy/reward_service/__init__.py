"""`marble serve-reward`: one reward behind HTTP, the other half of rewards.http_scorer (docs/http_rewards.md)."""
