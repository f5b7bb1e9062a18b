// A folder of single files, as ComfyUI keeps them: what each is follows from its header, never from its name (inside this room
// only). Where two files could be the same component, the user is asked.
#ifndef VX_WEIGHTS_SINGLE_FILES_H
#define VX_WEIGHTS_SINGLE_FILES_H

#include "weights/model_map.h"

// Does the folder look like one: diffusion_models/ or unet/ in it, or model files in it and no configuration?
vx_status vx_single_files_here(const char *folder, bool *here);
// Components that `map` does not have and `params` does not name. wanted: the partition, where that is known.
vx_status vx_single_files_take(vx_model_map *map, const char *folder, const vx_model_map_params *params, vx_variant wanted);

#endif
