"""torch.distributed.elastic: what programs under the launcher use of it."""
