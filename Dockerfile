# Two stages: DuckDB and the SQL parser need a C++ compiler, the program needs only its C++ library and Postgres' binaries.
FROM golang:1.27-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN go build -tags duckdb_arrow -o /sluice ./cmd/sluice

FROM debian:bookworm-slim
RUN mkdir -p /etc/postgresql-common \
 && echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf \
 && apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates libstdc++6 postgresql-15 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --home-dir /var/lib/sluice sluice
COPY --from=build /sluice /usr/local/bin/sluice
USER sluice
WORKDIR /var/lib/sluice
VOLUME /var/lib/sluice
EXPOSE 5433 8181
# Inside a container nothing can connect over loopback: give SLUICE_TLS_CERT and SLUICE_TLS_KEY, or SLUICE_INSECURE_LISTEN=true.
ENV SLUICE_LISTEN=0.0.0.0:5433 SLUICE_HTTP=0.0.0.0:8181 SLUICE_DATA=/var/lib/sluice
ENTRYPOINT ["sluice"]
CMD ["serve"]
