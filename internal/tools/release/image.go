package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The types of the documents of an image, by the specification of OCI, version 1.0.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor refers to a document or a layer of an image by its sum.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type imageIndex struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type imageManifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type imageConfig struct {
	platform

	Created time.Time `json:"created"`
	Config  runConfig `json:"config"`
	RootFS  rootFS    `json:"rootfs"`
}

// runConfig is how a container of the image runs. The keys are those of Docker.
type runConfig struct {
	User       string
	Ports      map[string]struct{} `json:"ExposedPorts"`
	Entrypoint []string
	Cmd        []string
	Labels     map[string]string
}

// rootFS has the sums of the layers before they were compressed.
type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// image is an image for several platforms while it is written.
type image struct {
	release

	files    []file // of the layout
	platform []descriptor
	run      runConfig
}

// newImage returns an image that runs as the Dockerfile says: there is one place for the user, the
// port and the command.
func (r release) newImage(dockerfile []byte) (*image, error) {
	_, last, scratch := strings.Cut(string(dockerfile), "\nFROM scratch\n")
	if !scratch {
		return nil, fmt.Errorf("the last stage of the Dockerfile is not FROM scratch")
	}
	i := &image{release: r, run: runConfig{Ports: map[string]struct{}{}, Labels: r.labels()}}
	for line := range strings.Lines(last) {
		instruction, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		var err error
		switch instruction {
		case "USER":
			i.run.User = value
		case "EXPOSE":
			i.run.Ports[value+"/tcp"] = struct{}{}
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(value), &i.run.Entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(value), &i.run.Cmd)
		case "", "#", "COPY": // add has the same files
		default:
			err = fmt.Errorf("the image has no %s", instruction)
		}
		if err != nil {
			return nil, fmt.Errorf("the instruction %s of the Dockerfile: %w", instruction, err)
		}
	}
	return i, nil
}

// labels returns what registries show of an image.
func (r release) labels() map[string]string {
	const name, home = "org.opencontainers.image.", "https://github.com/dlxctl/dlxctl"
	return map[string]string{
		name + "title":         "dlxctl",
		name + "description":   "Retries with backoff and dead letters for RabbitMQ",
		name + "url":           home,
		name + "source":        home,
		name + "documentation": home + "/blob/main/docs/processor.md",
		name + "licenses":      "Apache-2.0",
		name + "version":       r.version,
		name + "revision":      r.commit,
		name + "created":       r.date.Format(time.RFC3339),
	}
}

// add adds the program of a platform: a layer with the certificates, which is the same for all, and
// one with the program.
func (i *image) add(t target, binary []byte) error {
	manifest := imageManifest{SchemaVersion: 2, MediaType: manifestType}
	config := imageConfig{platform{t.arch, t.os}, i.date, i.run, rootFS{Type: "layers"}}
	for _, f := range []file{{certificates, 0o644, authorities()}, {"dlxctl", 0o755, binary}} {
		var compressed bytes.Buffer
		if err := tarball(&compressed, append(folders(f.name), f), i.date); err != nil {
			return err
		}
		z, err := gzip.NewReader(bytes.NewReader(compressed.Bytes()))
		if err != nil {
			return err
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			return err
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, fmt.Sprintf("sha256:%x", sha256.Sum256(plain)))
		manifest.Layers = append(manifest.Layers, i.blob(layerType, compressed.Bytes()))
	}
	var err error
	if manifest.Config, err = i.document(configType, config); err != nil {
		return err
	}
	d, err := i.document(manifestType, manifest)
	d.Platform = &config.platform
	i.platform = append(i.platform, d)
	return err
}

// blob adds a document or a layer, under its sum.
func (i *image) blob(mediaType string, data []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	f := file{"blobs/sha256/" + sum, 0o644, data}
	if !slices.ContainsFunc(i.files, func(other file) bool { return other.name == f.name }) {
		i.files = append(i.files, f)
	}
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(data)}
}

func (i *image) document(mediaType string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	return i.blob(mediaType, data), err
}

// save writes the image as a tar of an OCI layout. Its index names one index of all platforms, as
// Docker writes it: an import then takes the platform of the machine, and a copy to a registry all.
func (i *image) save(name string) error {
	if len(i.platform) == 0 {
		return fmt.Errorf("the image is for Linux, and no platform is")
	}
	all, err := i.document(indexType, imageIndex{2, indexType, i.platform})
	if err != nil {
		return err
	}
	// A tag can have no +.
	tag := strings.ReplaceAll(i.version, "+", "-")
	all.Annotations = map[string]string{
		"io.containerd.image.name":          "ghcr.io/dlxctl/dlxctl:" + tag,
		"org.opencontainers.image.ref.name": tag,
	}
	index, err := json.Marshal(imageIndex{2, indexType, []descriptor{all}})
	if err != nil {
		return err
	}
	files := append(folders("blobs/sha256/x"), i.files...)
	files = append(files, file{"index.json", 0o644, index},
		file{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	slices.SortFunc(files, byName)
	var b bytes.Buffer
	if err := tarred(&b, files, i.date); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// folders returns the folders above a file, the outermost first.
func folders(name string) []file {
	var all []file
	for i, c := range name {
		if c == '/' {
			all = append(all, file{name[:i+1], 0o755, nil})
		}
	}
	return all
}

// certificates is where the image has the public authorities. Go looks there.
const certificates = "etc/ssl/certs/ca-certificates.crt"

// authorities returns the authorities that Mozilla trusts without a condition. They are pinned by
// go.mod: those of the machine would make another image on each machine.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return b.Bytes()
}

// image returns the image without any platform yet.
func (r release) image() (*image, error) {
	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		return nil, err
	}
	return r.newImage(dockerfile)
}

// makeImage writes nothing but the image, for those of the targets that are Linux.
func (r release) makeImage(ctx context.Context, targets []target, name string) error {
	i, err := r.image()
	if err != nil {
		return err
	}
	for _, t := range targets {
		if t.os != "linux" {
			continue
		}
		binary, err := r.build(ctx, t)
		if err != nil {
			return err
		}
		if err := i.add(t, binary); err != nil {
			return err
		}
	}
	return i.save(name)
}
