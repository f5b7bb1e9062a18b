// The configuration files, member for member those of the official checkpoint.
#include "demo/demo.h"

static json_t *numbers(const float *value, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(list, json_real((double)value[i]));
    return list;
}

json_t *vx_demo_model_index(bool second)
{
    json_t *tasks = second ? json_pack("[s]", "ref2va") : json_pack("[s,s]", "t2va", "fl2va");
    return json_pack("{s:s, s:s, s:[s,s], s:[s,s], s:[s,s], s:[s,s], s:n, s:[s,s], s:{s:i, s:s, s:o, s:{}, s:{s:f, s:f}}}",
                     "_class_name", "MiniMaxH3Pipeline", "_diffusers_version", "0.32.2", "text_encoder", "transformers",
                     "MiniMaxH3Qwen3VLHFEncoder", "tokenizer", "transformers", "Qwen2TokenizerFast", "video_vae", "diffusers",
                     "MiniMaxH3VideoVAE", "audio_vae", "diffusers", "MiniMaxH3AudioVAE", "scheduler", "transformer", "diffusers",
                     "MiniMaxH3DiTModel", "_minimax_h3", "schema_version", 1, "partition", second ? "ref2va" : "fl2va", "tasks",
                     tasks, "task_aliases", "sigma_shift_scales", "video", 12.0, "audio", 3.0);
}

json_t *vx_demo_transformer_config(const vx_demo_sizes *z)
{
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:[i,i,i], s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:f, s:f, s:f}",
        "_class_name", "MiniMaxH3DiTModel", "_diffusers_version", "0.32.2", "hidden_size", (json_int_t)z->denoiser.hidden,
        "num_layers", (json_int_t)z->denoiser.layers, "token_refiner_num_layers", (json_int_t)z->denoiser.refiner_layers,
        "num_attention_heads", (json_int_t)z->denoiser.heads, "attention_head_dim", (json_int_t)z->denoiser.head_dim,
        "ffn_hidden_size", (json_int_t)z->denoiser.ffn, "latents_dim", VX_DEMO_VIDEO_CHANNELS, "audio_latents_dim",
        VX_DEMO_AUDIO_CHANNELS, "patch_size", 1, 2, 2, "text_dim", (json_int_t)z->text.hidden, "timestep_input_dim",
        (json_int_t)z->denoiser.timestep_dim, "time_embed_hidden_size", (json_int_t)z->denoiser.time_hidden, "time_embed_dim",
        (json_int_t)z->denoiser.time_dim, "adaln_out_features", 18 * (json_int_t)z->denoiser.hidden, "final_adaln_out_features",
        2 * (json_int_t)z->denoiser.hidden, "rope_inv_freq_len", VX_DEMO_ROPE_FREQS, "norm_eps", 1e-5, "qk_norm_eps", 1e-5,
        "final_norm_eps", 1e-5);
}

json_t *vx_demo_language_config(const vx_demo_sizes *z, const json_t *special)
{
    json_t *text =
        json_pack("{s:b, s:s, s:I, s:s, s:I, s:I, s:s, s:i, s:I, s:I, s:I, s:f, s:{s:b, s:[I,I,I], s:s}, s:i, s:I}",
                  "attention_bias", 0, "dtype", "bfloat16", "head_dim", (json_int_t)z->text.head_dim, "hidden_act", "silu",
                  "hidden_size", (json_int_t)z->text.hidden, "intermediate_size", (json_int_t)z->text.ffn, "model_type",
                  "qwen3_vl_text", "max_position_embeddings", 262144, "num_attention_heads", (json_int_t)z->text.heads,
                  "num_hidden_layers", (json_int_t)z->text.layers, "num_key_value_heads", (json_int_t)z->text.kv_heads,
                  "rms_norm_eps", 1e-6, "rope_scaling", "mrope_interleaved", 1, "mrope_section", (json_int_t)z->text.section[0],
                  (json_int_t)z->text.section[1], (json_int_t)z->text.section[2], "rope_type", "default", "rope_theta", 5000000,
                  "vocab_size", (json_int_t)z->text.vocabulary);
    json_t *vision = json_pack(
        "{s:[I,I,I], s:I, s:s, s:I, s:i, s:I, s:s, s:I, s:I, s:I, s:i, s:i, s:i}", "deepstack_visual_indexes",
        (json_int_t)z->vision.deep[0], (json_int_t)z->vision.deep[1], (json_int_t)z->vision.deep[2], "depth",
        (json_int_t)z->vision.layers, "hidden_act", "gelu_pytorch_tanh", "hidden_size", (json_int_t)z->vision.hidden,
        "in_channels", 3, "intermediate_size", (json_int_t)z->vision.ffn, "model_type", "qwen3_vl", "num_heads",
        (json_int_t)z->vision.heads, "num_position_embeddings", (json_int_t)(z->vision.side * z->vision.side), "out_hidden_size",
        (json_int_t)z->text.hidden, "patch_size", 16, "spatial_merge_size", 2, "temporal_patch_size", 2);
    return json_pack("{s:[s], s:O, s:s, s:o, s:b, s:O, s:o, s:O, s:O}", "architectures", "Qwen3VLForConditionalGeneration",
                     "image_token_id", json_object_get(special, "<|image_pad|>"), "model_type", "qwen3_vl", "text_config", text,
                     "tie_word_embeddings", 0, "video_token_id", json_object_get(special, "<|video_pad|>"), "vision_config",
                     vision, "vision_end_token_id", json_object_get(special, "<|vision_end|>"), "vision_start_token_id",
                     json_object_get(special, "<|vision_start|>"));
}

json_t *vx_demo_video_config(const vx_demo_sizes *z)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:i, s:o, s:o}", "_class_name", "MiniMaxH3VideoVAE",
                     "source_path", "source", "source_class_name", "AutoencoderKLLegacy", "vae_clip_length", 17, "vae_token_drop",
                     3, "vae_encoder_tiling", 1, "vae_decoder_tiling", 1, "vae_tile_size", 256, "vae_tile_overlap_min", 64,
                     "source_safetensors_path", "model.safetensors", "latent_channels", VX_DEMO_VIDEO_CHANNELS, "latents_mean",
                     numbers(z->video_mean, VX_DEMO_VIDEO_CHANNELS), "latents_std",
                     numbers(z->video_std, VX_DEMO_VIDEO_CHANNELS));
}

json_t *vx_demo_video_source_config(const vx_demo_sizes *z)
{
    json_t *multiples = json_array(), *space = json_array(), *time = json_array();
    for (int level = 0; level < z->video.levels; level++) {
        json_array_append_new(multiples, json_integer((json_int_t)(z->video.widths[level] / z->video.widths[0])));
        json_array_append_new(space, json_integer(vx_demo_space_stride(level)));
        json_array_append_new(time, json_integer(vx_demo_time_stride(level)));
    }
    json_t *vit = json_pack("{s:I, s:s, s:b, s:I, s:b, s:s, s:I, s:b, s:s, s:f, s:f}", "dim_head", (json_int_t)z->video.head_dim,
                            "ffn_activation_fn", "silu", "ffn_use_gated", 1, "heads", (json_int_t)z->video.heads, "norm_affine",
                            1, "norm_type", "rms_norm", "num_layers", (json_int_t)z->video.layers, "qk_norm_affine", 0,
                            "qk_norm_type", "rms_norm", "rope_dim_ratio", 0.75, "rope_theta", 100.0);
    return json_pack("{s:s, s:b, s:b, s:I, s:o, s:i, s:i, s:i, s:i, s:s, s:s, s:o, s:o, s:b, "
                     "s:b, s:b, s:i, s:i, s:i, s:o}",
                     "_class_name", "AutoencoderKLLegacy", "causal_decoder", 0, "causal_encoder", 1, "ch",
                     (json_int_t)z->video.widths[0], "ch_mult", multiples, "embed_dim", VX_DEMO_VIDEO_CHANNELS, "in_channels", 3,
                     "num_res_blocks", 1, "out_ch", 3, "padding_mode", "reflect", "pixel_norm_type", "imagenet", "space_down",
                     space, "time_down", time, "use_3d_conv", 1, "use_t_isolated_gn", 1, "use_vit_decoder", 1, "vae_ratio", 16,
                     "vae_ratio_t", 4, "z_channels", VX_DEMO_VIDEO_CHANNELS, "vit_decoder_kwargs", vit);
}

json_t *vx_demo_audio_config(const vx_demo_sizes *z)
{
    return json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:i, s:o, s:o}", "_class_name", "MiniMaxH3AudioVAE", "output_channel", 2,
                     "sample_rate", 32000, "source_config_path", "config.yaml", "source_safetensors_path", "model.safetensors",
                     "source_metadata_path", "metadata.json", "latent_channels", VX_DEMO_AUDIO_CHANNELS, "latents_mean",
                     numbers(z->audio_mean, VX_DEMO_AUDIO_CHANNELS), "latents_std",
                     numbers(z->audio_std, VX_DEMO_AUDIO_CHANNELS));
}

// The heads of the encoder's attention stand in no released file; there are 8.
json_t *vx_demo_audio_metadata(const vx_demo_sizes *z)
{
    const int *r = vx_demo_rates, *e = vx_demo_encoder_rates;
    return json_pack("{s:{s:{s:b, s:I, s:[i,i,i,i,i,i,i], s:s, s:I, s:[i,i,i,i,i], s:I, s:I, s:i, s:i}}}", "metadata", "kwargs",
                     "attn_proj", 1, "decoder_dim", (json_int_t)z->audio.decoder_dim, "decoder_rates", r[0], r[1], r[2], r[3],
                     r[4], r[5], r[6], "decoder_type", "bigvgan", "encoder_dim", (json_int_t)z->audio.encoder_dim,
                     "encoder_rates", e[0], e[1], e[2], e[3], e[4], "latent_dim", (json_int_t)z->audio.latent_dim,
                     "num_attention_heads", (json_int_t)z->audio.heads, "sample_rate", 32000, "vae_latent_channels",
                     VX_DEMO_AUDIO_CHANNELS);
}
