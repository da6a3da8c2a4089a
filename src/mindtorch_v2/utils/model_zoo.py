"""torch.utils.model_zoo: the old name of torch.hub's download of weights."""
import mindtorch_v2 as torch

tqdm = torch.hub.tqdm
load_url = load_state_dict_from_url = torch.hub.load_state_dict_from_url
