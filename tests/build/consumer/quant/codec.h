// A decoy: a consumer may have a file of this name.
#pragma once
#define DECOY_QUANT_CODEC_H 1
