# An image that contains dlxctl and nothing else: no shell, and no root user.
#
#   docker build --build-arg VERSION=$(git describe --tags --always) \
#     --build-arg COMMIT=$(git rev-parse HEAD) -t dlxctl .
#   docker run --rm -e RABBITMQ_URL -v "$PWD/topology.yaml:/topology.yaml:ro" dlxctl process
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel COMMIT= DATE=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false \
	-ldflags "-s -w -X github.com/dlxctl/dlxctl/cmd.version=$VERSION -X github.com/dlxctl/dlxctl/cmd.commit=$COMMIT -X github.com/dlxctl/dlxctl/cmd.date=$DATE" \
	-o /dlxctl .

FROM scratch
# Public certificate authorities, for amqps and for webhooks. For your own authorities, mount
# their file and set DLXCTL_CA_FILE.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /dlxctl /dlxctl
# A numeric user, so that Kubernetes can verify that it is not root.
USER 65532:65532
EXPOSE 9419
ENTRYPOINT ["/dlxctl"]
CMD ["process"]
