"""`marble serve-reward`: one reward behind HTTP, the other half of rewards.http (docs/http_rewards.md)."""
