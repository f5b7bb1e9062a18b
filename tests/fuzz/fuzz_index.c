// An index of a sharded set, any text, beside two shards. What is opened are files of this folder, each once.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "weights/shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64], index_path[96], one[96], two[96];

static void must(bool condition)
{
    if (!condition) abort();
}

static void remove_all(void)
{
    unlink(index_path);
    unlink(one);
    unlink(two);
    rmdir(folder);
}

static void make_all(void)
{
    static const uint8_t bytes[8];
    const vx_safetensors_tensor a[] = { { "a", VX_F32, 1, { 2 }, bytes }, { "b", VX_U8, 1, { 3 }, bytes } },
                                c[] = { { "c", VX_F32, 1, { 1 }, bytes } };
    snprintf(folder, sizeof folder, "/tmp/vortex-fuzz-XXXXXX");
    must(mkdtemp(folder) != NULL);
    snprintf(index_path, sizeof index_path, "%s/model.safetensors.index.json", folder);
    snprintf(one, sizeof one, "%s/1.safetensors", folder);
    snprintf(two, sizeof two, "%s/2.safetensors", folder);
    must(vx_safetensors_write(one, false, a, 2, NULL, 0).code == VX_OK);
    must(vx_safetensors_write(two, false, c, 1, NULL, 0).code == VX_OK);
    atexit(remove_all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!folder[0]) make_all();
    int fd = open(index_path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
    vx_shards shards;
    vx_status s = vx_shards_open_index(&shards, index_path);
    if (s.code == VX_OK) {
        must(shards.files >= 1 && shards.files <= 2);
        int tensors = 0;
        for (int f = 0; f < shards.files; f++) {
            must(strncmp(vx_container_path(&shards.file[f]), folder, strlen(folder)) == 0);
            must(strchr(vx_container_path(&shards.file[f]) + strlen(folder) + 1, '/') == NULL);
            tensors += vx_container_count(&shards.file[f]);
        }
        must(tensors == shards.tensors);
        must(shards.files == 1 || strcmp(vx_container_path(&shards.file[0]), vx_container_path(&shards.file[1])) != 0);
    } else {
        must(s.code / 1000 == 3 && s.message[0] && !shards.file);
    }
    vx_shards_close(&shards);
    return 0;
}
