"""Names of the solver of gradual typing, which is not offered."""
import mindtorch_v2 as torch

globals().update(torch._facade.refusals(
    "infer_symbolic_types infer_symbolic_types_single_pass convert_eq unify_eq substitute_solution_one_type",
    "gradual types are not solved; sizes are plain ints, see torch.fx.passes.shape_prop",
    "torch.fx.experimental.unify_refinements."))
