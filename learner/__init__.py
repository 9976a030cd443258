"""The learner: policy, sampler, NFT loss, advantages, per-reward gradients, train step, checkpoints. Plain torch."""
