package main

import (
	"encoding/json"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// everything returns a JobSet with each field of the Job and claim templates that the Go types have, all of them empty or
// zero and all of them written. What a Go client makes of it shows which of them it leaves out.
func everything() map[string]any {
	jobset := JobSet{Spec: JobSetSpec{
		ReplicatedJobs:      make([]ReplicatedJob, 1),
		VolumeClaimPolicies: []VolumeClaimPolicy{{}},
	}}
	fill(reflect.ValueOf(&jobset.Spec.ReplicatedJobs[0].Template).Elem())
	policy := &jobset.Spec.VolumeClaimPolicies[0]
	fill(reflect.ValueOf(&policy.Templates).Elem())
	written := func(value any) any { return explicit(reflect.ValueOf(value)) }
	template := written(jobset.Spec.ReplicatedJobs[0].Template).(map[string]any)
	spec := template["spec"].(map[string]any)
	spec["completionMode"], spec["podReplacementPolicy"] = "Indexed", "Failed" // the CRD knows their values
	pod := spec["template"].(map[string]any)["spec"].(map[string]any)
	pod["restartPolicy"] = "Never"
	container := pod["containers"].([]any)[0].(map[string]any)
	container["volumeMounts"].([]any)[0].(map[string]any)["name"] = "data"
	fillIn(pod)
	claim := written(policy.Templates[0]).(map[string]any)
	metadata := claim["metadata"].(map[string]any)
	metadata["name"] = "data"
	delete(metadata, "namespace")
	return map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2",
		"kind":       "JobSet",
		"metadata":   map[string]any{"name": "everything"},
		"spec": map[string]any{
			"replicatedJobs":      []any{map[string]any{"name": "all", "template": template}},
			"volumeClaimPolicies": []any{map[string]any{"templates": []any{claim}}},
		},
	}
}

// filledIn are the texts that the CRD fills in where a Go type leaves "" out; deploy/immutable.py has them too.
var filledIn = map[string]string{
	"protocol": "TCP", "iscsiInterface": "default", "keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin",
	"storageMode": "ThinProvisioned",
}

// fillIn writes the texts that the CRD would fill in; all fields are zero before.
func fillIn(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, item := range value {
			if text, known := filledIn[key]; known {
				value[key] = text
			}
			fillIn(item)
		}
		if scale, isScale := value["scaleIO"].(map[string]any); isScale {
			scale["fsType"] = "xfs"
		}
	case []any:
		for _, item := range value {
			fillIn(item)
		}
	}
}

// fill gives each pointer a value, each list an item and each map a key.
func fill(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem())
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		fill(value.Index(0))
	case reflect.Map:
		item := reflect.New(value.Type().Elem()).Elem()
		fill(item)
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(reflect.ValueOf("key").Convert(value.Type().Key()), item)
	case reflect.Struct:
		if value.Type() == reflect.TypeFor[resource.Quantity]() || marshals(value) {
			return
		}
		for i := range value.NumField() {
			if value.Field(i).CanSet() {
				fill(value.Field(i))
			}
		}
	}
}

func marshals(value reflect.Value) bool {
	return value.Type().Implements(reflect.TypeFor[json.Marshaler]()) ||
		reflect.PointerTo(value.Type()).Implements(reflect.TypeFor[json.Marshaler]())
}

// explicit encodes a value with all of its fields, also those that `omitempty` would leave out.
func explicit(value reflect.Value) any {
	if value.Kind() == reflect.Pointer {
		return explicit(value.Elem())
	}
	switch {
	case marshals(value):
		encoded, _ := json.Marshal(value.Interface())
		var decoded any
		_ = json.Unmarshal(encoded, &decoded)
		return decoded
	case value.Kind() == reflect.Struct:
		fields := map[string]any{}
		for i := range value.NumField() {
			field := value.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case name == "-":
			case name == "" && field.Anonymous:
				for key, item := range explicit(value.Field(i)).(map[string]any) {
					fields[key] = item
				}
			default:
				fields[name] = explicit(value.Field(i))
			}
		}
		return fields
	case value.Kind() == reflect.Slice:
		items := make([]any, value.Len())
		for i := range items {
			items[i] = explicit(value.Index(i))
		}
		return items
	case value.Kind() == reflect.Map:
		items := map[string]any{}
		for _, key := range value.MapKeys() {
			items[key.String()] = explicit(value.MapIndex(key))
		}
		return items
	}
	return value.Interface()
}
