#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a connectx_test of a binary runs: run_binary.sh RUN_BINARY OPTION...
exec "$@"
