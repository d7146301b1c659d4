#!/bin/sh
set -e
printf '#!/bin/sh\nsed "s/NAME/$1/" /app/template.txt\n' >/app/greet.sh
chmod +x /app/greet.sh
