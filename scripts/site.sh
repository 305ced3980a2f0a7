#!/bin/sh
# site.sh: the pages of docs/ as a site in dist/site. A link that leads nowhere fails the build.
set -eu
cd docs/site
npm ci --no-audit --no-fund --ignore-scripts
npm run build
