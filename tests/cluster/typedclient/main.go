// Command typedclient writes JobSets as clients with Go types do, and says what the API server refuses.
//
//	typedclient KUBECONFIG NAMESPACE MANIFEST...
//
//	typedclient relabel KUBECONFIG NAMESPACE NAME
//
// The second reads one JobSet and writes it back with another label. The first one's answer is a table in JSON: a row for each manifest, way of creation and operation.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
)

// row is one cell of the table: what was done to which manifest, and what came of it.
type row struct {
	Manifest  string `json:"manifest"`
	Created   string `json:"created"`
	Operation string `json:"operation"`
	Forbidden bool   `json:"forbidden"`
	Refusal   string `json:"refusal"`
	// Respelled counts the generations by which an operation that changes nothing moved the object.
	Respelled int64 `json:"respelled"`
}

// manifest is one JobSet as its author wrote it.
type manifest struct {
	name    string
	content map[string]any
	example bool
}

// table is what was done to one manifest.
type table struct {
	server *server
	prefix string
	rows   []row
	count  int
}

// atOnce bounds the manifests that are tried side by side: enough to keep a small machine busy.
const atOnce = 4

func main() {
	if len(os.Args) < 4 || os.Args[1] == "relabel" && len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: typedclient KUBECONFIG NAMESPACE MANIFEST...")
		os.Exit(64)
	}
	if os.Args[1] == "relabel" {
		server, err := connect(os.Args[2], os.Args[3])
		exitOn(err)
		_, err = server.change(os.Args[4], label)
		exitOn(err)
		return
	}
	server, err := connect(os.Args[1], os.Args[2])
	exitOn(err)
	manifests := []manifest{{"everything", everything(), false}}
	for _, path := range os.Args[3:] {
		found, err := read(path)
		exitOn(err)
		manifests = append(manifests, found...)
	}
	var waiting sync.WaitGroup
	tables := make([]table, len(manifests))
	places := make(chan struct{}, atOnce)
	for i, each := range manifests {
		tables[i] = table{server: server, prefix: fmt.Sprintf("t%d", i)}
		waiting.Go(func() {
			places <- struct{}{}
			tables[i].try(each)
			<-places
		})
	}
	waiting.Wait()
	rows := []row{}
	for _, each := range tables {
		rows = append(rows, each.rows...)
	}
	exitOn(json.NewEncoder(os.Stdout).Encode(rows))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "typedclient:", err)
		os.Exit(1)
	}
}

// read returns the JobSets of a file.
func read(path string) ([]manifest, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found []manifest
	for _, document := range strings.Split(string(text), "\n---\n") {
		content := map[string]any{}
		if err := yaml.Unmarshal([]byte(document), &content); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if content["kind"] == "JobSet" {
			found = append(found, manifest{filepath.Base(path), content, filepath.Base(filepath.Dir(path)) == "examples"})
		}
	}
	return found, nil
}

// try does everything to a manifest, however it was created. Examples take half of the ways each, for the time it takes.
func (t *table) try(m manifest) {
	for i, created := range []string{"as YAML", "typed"} {
		half := func(which int) bool { return !m.example || which == i }
		orders := permutations(operationsFor(m))
		if m.example {
			orders = [][]operation{orders[i*(len(orders)-1)]} // forwards or backwards
		}
		for _, order := range orders {
			t.inOrder(m, created, order)
		}
		t.appliedAgain(m, created)
		for which, suspended := range []bool{false, true} {
			if half(which) {
				t.forbidden(m, created, suspended)
			}
		}
		if half(0) {
			t.queue(m, created, "typed", (*server).change)
		}
		if half(1) {
			t.queue(m, created, "patch", (*server).mergePatch)
		}
	}
}

// create stores a copy of a manifest under a name of its own, and returns the name.
func (t *table) create(m manifest, created string, suspended bool) (string, map[string]any) {
	t.count++
	name := fmt.Sprintf("%s-%d", t.prefix, t.count)
	content := map[string]any{}
	exitOn(recode(m.content, &content))
	content["metadata"].(map[string]any)["name"] = name
	delete(content["metadata"].(map[string]any), "namespace")
	spec := content["spec"].(map[string]any)
	if suspended {
		spec["suspend"] = true
	}
	var body any = content
	if created == "typed" {
		forgetReasons(spec)
		jobset := &JobSet{}
		exitOn(recode(content, jobset))
		body = jobset
	}
	if err := t.server.send("POST", "", asJSON, body, &JobSet{}); err != nil {
		exitOn(fmt.Errorf("%s, created %s: %w", m.name, created, err))
	}
	return name, content
}

// forgetReasons removes the field of a rule that upstream's types do not have: who creates with them cannot set it.
func forgetReasons(spec map[string]any) {
	policy, _ := spec["failurePolicy"].(map[string]any)
	rules, _ := policy["rules"].([]any)
	for _, rule := range rules {
		delete(rule.(map[string]any), "setConditionReason")
	}
}

// note adds a row; the first writes of a client may spell the object anew.
func (t *table) note(m manifest, created, operation string, err error) *row {
	refusal := ""
	if err != nil {
		refusal = err.Error()
	}
	t.rows = append(t.rows, row{Manifest: m.name, Created: created, Operation: operation, Refusal: refusal})
	return &t.rows[len(t.rows)-1]
}

// inOrder does operations one after the other to one JobSet.
func (t *table) inOrder(m manifest, created string, order []operation) {
	name, _ := t.create(m, created, false)
	for _, each := range order {
		if each.edit != nil {
			_, err := t.server.change(name, each.edit)
			t.note(m, created, each.name, err)
			continue
		}
		_, err := t.server.change(name, func(j *JobSet) { j.Spec.Suspend = &yes })
		t.note(m, created, "suspend", err)
		_, err = t.server.change(name, admit)
		t.note(m, created, "resume elsewhere", err)
	}
	before, err := t.server.get(name)
	exitOn(err)
	after, err := t.server.change(name, label)
	t.note(m, created, "label again", err).Respelled = after.Generation - before.Generation
}

// appliedAgain lets the plain manifest and a typed client write in turns.
func (t *table) appliedAgain(m manifest, created string) {
	name, content := t.create(m, created, false)
	before, err := t.server.get(name)
	exitOn(err)
	for turn := range 2 {
		applied := &JobSet{}
		err := t.server.send("PATCH", "/"+name, asMergePatch, content, applied)
		said := t.note(m, created, "kubectl apply", err)
		if err == nil {
			said.Respelled = applied.Generation - before.Generation
		}
		t.note(m, created, "kubectl apply, server-side", t.server.send(
			"PATCH", "/"+name+"?fieldManager=kubectl&force=true", asApplyPatch, content, &JobSet{}))
		after, err := t.server.change(name, label)
		said = t.note(m, created, fmt.Sprintf("label after apply %d", turn), err)
		if err == nil {
			said.Respelled = after.Generation - before.Generation
		}
	}
	after, err := t.server.get(name)
	exitOn(err)
	if !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		t.note(m, created, "kubectl apply", fmt.Errorf("the spec became another"))
	}
}

// forbidden tries what no client may do.
func (t *table) forbidden(m manifest, created string, suspended bool) {
	name, _ := t.create(m, created, suspended)
	for _, each := range changes {
		_, err := t.server.change(name, each.edit)
		t.note(m, created, fmt.Sprintf("%s, suspended %t", each.name, suspended), err).Forbidden = true
	}
}

func recode(from, to any) error {
	encoded, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(encoded, to)
}

func permutations(of []operation) [][]operation {
	if len(of) == 0 {
		return [][]operation{nil}
	}
	var all [][]operation
	for i := range of {
		rest := append(append([]operation{}, of[:i]...), of[i+1:]...)
		for _, tail := range permutations(rest) {
			all = append(all, append([]operation{of[i]}, tail...))
		}
	}
	return all
}
