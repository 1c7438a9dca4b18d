package decode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// SchemaFiles names the files that describe message types of protobuf.
type SchemaFiles struct {
	// Protosets are descriptor sets, as written by buf build -o or by protoc with
	// --include_imports --descriptor_set_out.
	Protosets []string
	// Protos are files of protobuf source, each relative to one of ImportPaths.
	Protos []string
	// ImportPaths are the folders in which Protos and their imports are looked up, in order.
	// None is the working directory.
	ImportPaths []string
	// Read returns the content of a file. An error that is fs.ErrNotExist makes an import be
	// looked up in the next folder.
	Read func(name string) ([]byte, error)
}

// Schemas are message types of protobuf, by name.
type Schemas struct {
	files *protoregistry.Files
	types *dynamicpb.Types
}

// NewSchemas reads the files that describe message types.
func NewSchemas(f SchemaFiles) (*Schemas, error) {
	files := new(protoregistry.Files)
	for _, name := range f.Protosets {
		if err := addProtoset(files, name, f.Read); err != nil {
			return nil, err
		}
	}
	if err := addProtos(files, f); err != nil {
		return nil, err
	}
	return &Schemas{files: files, types: dynamicpb.NewTypes(files)}, nil
}

// addProtoset adds the files of a descriptor set. Files that other sets brought are skipped.
func addProtoset(files *protoregistry.Files, name string, read func(string) ([]byte, error)) error {
	data, err := read(name)
	if err != nil {
		return fmt.Errorf("descriptor set %s: %w", name, err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil || len(set.GetFile()) == 0 {
		return fmt.Errorf("%s is not a descriptor set; write it with 'buf build -o %s', or with protoc --include_imports --descriptor_set_out", name, name)
	}
	set.File = slices.DeleteFunc(set.GetFile(), func(d *descriptorpb.FileDescriptorProto) bool {
		_, err := files.FindFileByPath(d.GetName())
		return err == nil
	})
	// A descriptor set may come without the files that every compiler of protobuf brings along.
	for _, d := range slices.Clone(set.GetFile()) {
		for _, dep := range d.GetDependency() {
			addStandard(files, &set, dep)
		}
	}
	merged := protodesc.ToFileDescriptorProto
	files.RangeFiles(func(d protoreflect.FileDescriptor) bool {
		set.File = append(set.File, merged(d))
		return true
	})
	all, err := protodesc.NewFiles(&set)
	if err != nil {
		return fmt.Errorf("descriptor set %s: %w; write it with its imports (protoc --include_imports)", name, err)
	}
	all.RangeFiles(func(d protoreflect.FileDescriptor) bool {
		if _, known := files.FindFileByPath(d.Path()); known != nil {
			err = errors.Join(err, files.RegisterFile(d))
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("descriptor set %s: %w; remove one of the files that declare the name", name, err)
	}
	return nil
}

// addStandard adds a file of google/protobuf to a set that imports it and lacks it.
func addStandard(files *protoregistry.Files, set *descriptorpb.FileDescriptorSet, name string) {
	has := func(d *descriptorpb.FileDescriptorProto) bool { return d.GetName() == name }
	if _, err := files.FindFileByPath(name); err == nil || slices.ContainsFunc(set.GetFile(), has) {
		return
	}
	standard, err := protocompile.WithStandardImports(protocompile.ResolverFunc(
		func(string) (protocompile.SearchResult, error) {
			return protocompile.SearchResult{}, protoregistry.NotFound
		})).FindFileByPath(name)
	if err == nil && standard.Desc != nil {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(standard.Desc))
	}
}

// addProtos compiles files of protobuf source and adds them with what they import.
//
//nolint:contextcheck,nolintlint // compiling needs no end: it reads no more than Read returns
func addProtos(files *protoregistry.Files, f SchemaFiles) error {
	if len(f.Protos) == 0 {
		return nil
	}
	folders := f.ImportPaths
	if len(folders) == 0 {
		folders = []string{"."}
	}
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(protocompile.ResolverFunc(
		func(name string) (protocompile.SearchResult, error) { return findProto(name, folders, f.Read) }))}
	names := make([]string, len(f.Protos))
	for i, name := range f.Protos {
		names[i] = inFolder(name, folders)
	}
	compiled, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return fmt.Errorf("protobuf source: %w", err)
	}
	for _, file := range compiled {
		if err := addWithImports(files, file); err != nil {
			return fmt.Errorf("protobuf source %s: %w; remove one of the files that declare the name", file.Path(), err)
		}
	}
	return nil
}

// inFolder returns the name of a file as imports spell it: relative to the folder that holds
// it, if it was given with the folder, as protoc accepts it.
func inFolder(name string, folders []string) string {
	for _, folder := range folders {
		if rest, ok := strings.CutPrefix(path.Clean(name), path.Clean(folder)+"/"); ok {
			return rest
		}
	}
	return path.Clean(name)
}

// findProto reads a file of protobuf source from the first folder that has it.
func findProto(name string, folders []string, read func(string) ([]byte, error)) (protocompile.SearchResult, error) {
	for _, folder := range folders {
		at := path.Join(folder, name)
		if path.IsAbs(name) {
			at = name
		}
		data, err := read(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return protocompile.SearchResult{}, fmt.Errorf("%s: %w", at, err)
		}
		return protocompile.SearchResult{Source: bytes.NewReader(data)}, nil
	}
	return protocompile.SearchResult{}, fmt.Errorf("not found in %s; add its folder as an import path",
		strings.Join(folders, ", "))
}

// addWithImports adds a file and what it imports, unless it is there already.
func addWithImports(files *protoregistry.Files, d protoreflect.FileDescriptor) error {
	if _, err := files.FindFileByPath(d.Path()); err == nil {
		return nil
	}
	for i := range d.Imports().Len() {
		if err := addWithImports(files, d.Imports().Get(i).FileDescriptor); err != nil {
			return err
		}
	}
	return files.RegisterFile(d)
}

// message returns the message type of that name, or nil.
func (s *Schemas) message(name string) protoreflect.MessageDescriptor {
	if s == nil {
		return nil
	}
	d, err := s.files.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil
	}
	m, _ := d.(protoreflect.MessageDescriptor)
	return m
}

// Types returns the names of the message types, sorted, without those of google.protobuf.
func (s *Schemas) Types() []string {
	if s == nil {
		return nil
	}
	var names []string
	var add func(list protoreflect.MessageDescriptors)
	add = func(list protoreflect.MessageDescriptors) {
		for i := range list.Len() {
			if m := list.Get(i); !m.IsMapEntry() {
				names = append(names, string(m.FullName()))
				add(m.Messages())
			}
		}
	}
	s.files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if f.Package() != "google.protobuf" {
			add(f.Messages())
		}
		return true
	})
	slices.Sort(names)
	return names
}
