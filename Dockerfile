# The program on a small system, without Python:
#
#     docker build -t habitat-tui . && docker run --rm -it -v "$PWD:/work" habitat-tui predict step.habitat.json.zst
FROM rust:1-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN cargo build --locked --profile dist -p habitat-tui

FROM debian:bookworm-slim
COPY --from=build /source/target/dist/habitat-tui /usr/local/bin/
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/habitat-tui/
# Files of the user are in /work; settings and prices of its own would be in /config.
ENV HABITAT_TUI_CONFIG_DIR=/config LANG=C.UTF-8
WORKDIR /work
ENTRYPOINT ["habitat-tui"]
