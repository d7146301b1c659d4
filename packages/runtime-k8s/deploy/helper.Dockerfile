# The image that boxes get their helper from. In a folder with the programs of the npm package @breakwater/box-helper:
#
#   docker build -f helper.Dockerfile -t REGISTRY/box-helper:VERSION node_modules/@breakwater/box-helper/bin
#
# For nodes of several architectures: docker buildx build --platform linux/amd64,linux/arm64 --push …
FROM scratch
ARG TARGETARCH=amd64
COPY helper-linux-${TARGETARCH} /helper
ENTRYPOINT ["/helper"]
CMD ["idle"]
