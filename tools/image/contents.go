package main

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// contents are the files of the image and its configuration.
type contents struct {
	files  []file
	config v1.Config
}

// A file is a file of the image, or an empty directory of the user that the hub runs as.
type file struct {
	from string // path in the directory of the programs or of the repository; empty for a directory
	to   string
	mode int64 // permissions
	kept bool  // whether from is in the repository
}

// user is the ID of the user that the hub runs as.
const user = 65532

// newContents returns the same contents as the last stage of deploy/Dockerfile. Labels without a
// value are omitted.
func newContents(version, revision, created string) *contents {
	c := &contents{
		files: []file{
			{from: "rshub", to: "rshub", mode: 0o755}, {from: "rspublish", to: "rspublish", mode: 0o755}, {from: "rsmirror", to: "rsmirror", mode: 0o755},
			{from: "LICENSE", to: "LICENSE", mode: 0o644, kept: true}, {from: "THIRD_PARTY.txt", to: "THIRD_PARTY.txt", mode: 0o644}, {to: "data", mode: 0o700},
		},
		config: v1.Config{
			User: "65532:65532", Env: []string{"RSHUB_LISTEN=:8080", "RSHUB_OPS_LISTEN=:8081", "RSHUB_DATA=/data"},
			Volumes: map[string]struct{}{"/data": {}}, ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}}, Entrypoint: []string{"/rshub"},
			Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/rshub", "health"}, Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: time.Minute, Retries: 3},
			Labels: map[string]string{
				"org.opencontainers.image.title":         "rshub",
				"org.opencontainers.image.description":   "A ResourceSync push hub",
				"org.opencontainers.image.url":           "https://github.com/rshub/rshub",
				"org.opencontainers.image.source":        "https://github.com/rshub/rshub",
				"org.opencontainers.image.documentation": "https://github.com/rshub/rshub#readme",
				"org.opencontainers.image.licenses":      "Apache-2.0",
				"org.opencontainers.image.created":       created,
			},
		},
	}
	for name, value := range map[string]string{"version": version, "revision": revision} {
		if value != "" {
			c.config.Labels["org.opencontainers.image."+name] = value
		}
	}
	return c
}
