#!/bin/bash
# An operator launch that fails.
echo "aclrtLaunchKernel failed: error 507015" >&2
exit 42
