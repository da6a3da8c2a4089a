"""Settings of torch.fx."""

disable_progress = True                          # no progress bar while an interpreter runs
verbose_progress = False                         # show the node that runs in the progress bar
do_not_emit_stack_traces = False                 # leave stacks out of nodes
