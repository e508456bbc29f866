/** Who belongs to the workspace, and in which role. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Member, MemberBody } from "../api";
import { Action } from "../actions";
import { ask } from "../client";
import { counted, quoted } from "../format";
import { useList } from "../lists";
import { lacks, workspace } from "../session";
import { Button, CopyLine } from "../parts/basics";
import { FormDialog, SelectField, TextField } from "../parts/form";
import { ListFoot } from "../parts/listfoot";
import { Empty, Loaded } from "../parts/states";
import { ACTIONS, Table, type Column } from "../parts/table";
import { Head } from "../shell";
import { ROLES } from "./keys";

export function Members(): JSX.Element {
  const list = useList<"GET /v1/members", Member>("GET /v1/members", {}, (one) => one.principal, ["audit"]);
  const [changed, setChanged] = useState<Member>();
  const reload = () => void list.resource.reload();
  return (
    <>
      <Head title="Members" note={`People in the workspace ${workspace.value}. Each logs in with their own key.`} />
      <Loaded of={list.resource}>
        {() =>
          list.rows.length ? (
            <>
              <Table label="Members" rows={list.rows} rowKey={(one) => one.principal} columns={columns(setChanged, reload)} />
              <ListFoot list={list} line={`detent keys member list --workspace ${quoted(workspace.value)}`} />
            </>
          ) : (
            <Empty title="No members yet">
              <p>Add people on the server's machine, and create a key for each:</p>
              <pre class="sample" tabIndex={0}>{`detent keys member set --name ann --role operator --workspace ${quoted(workspace.value)}`}</pre>
            </Empty>
          )
        }
      </Loaded>
      {changed && <Change of={changed} onClose={() => setChanged(undefined)} reload={reload} />}
    </>
  );
}

function columns(change: (one: Member) => void, reload: () => void): Column<Member>[] {
  return [
    { name: "name", head: "Name", kind: "main", cell: (one) => one.name ?? one.principal },
    { name: "principal", head: "Principal", cell: (one) => <code>{one.principal}</code> },
    { name: "role", head: "Role", kind: "grow", cell: (one) => <span title={one.scopes.join(", ")}>{one.role.replace("_", " ")} <span class="faint">({counted(one.scopes.length, "scope")})</span></span> },
    {
      name: "actions",
      head: ACTIONS,
      cell: (one) => (
        <span class="buttons">
          <Button why={lacks("members:write")} onClick={() => change(one)}>
            Change
          </Button>
          <Action
            label="Remove"
            kind="danger"
            scope="members:write"
            line={`detent keys member remove ${one.principal} --workspace ${quoted(workspace.value)}`}
            ask={`${one.name ?? one.principal} loses access to this workspace, and their keys stop working.`}
            run={async () => {
              await ask("DELETE /v1/members/{principal}", { path: { principal: one.principal } });
              reload();
              return "Member removed";
            }}
          />
        </span>
      ),
    },
  ];
}

function Change({ of, onClose, reload }: { of: Member; onClose: () => void; reload: () => void }): JSX.Element {
  return (
    <FormDialog
      title={`Change ${of.name ?? of.principal}`}
      action="Save"
      onClose={onClose}
      line={<CopyLine text={`detent keys member set ${of.principal} --role ROLE --workspace ${quoted(workspace.value)}`} />}
      submit={async (said) => {
        await ask("PUT /v1/members/{principal}", { path: { principal: of.principal }, body: { role: said.role as MemberBody["role"], name: said.name || null } });
        onClose();
        reload();
      }}
    >
      <TextField name="name" label="Name" value={of.name ?? ""} hint="Stored outside the ledger, so it can be erased." maxLength={100} />
      <SelectField name="role" label="Role" value={of.role} options={ROLES} />
    </FormDialog>
  );
}
